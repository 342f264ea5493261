"""The GPU types that a manifest may name.

Memory is the largest variant sold, from NVIDIA's product pages; a request above it fits no card.
What a node really has comes from its inventory.
"""

from __future__ import annotations

MEMORY_MIB_BY_TYPE = {
    "A10": 24 * 1024,
    "A100": 80 * 1024,
    "A16": 16 * 1024,
    "A2": 16 * 1024,
    "A30": 24 * 1024,
    "A40": 48 * 1024,
    "B200": 192 * 1024,
    "B300": 288 * 1024,
    "GB200": 192 * 1024,
    "GB300": 288 * 1024,
    "GH200": 144 * 1024,
    "H100": 96 * 1024,
    "H20": 141 * 1024,
    "H200": 141 * 1024,
    "H800": 80 * 1024,
    "L4": 24 * 1024,
    "L40": 48 * 1024,
    "L40S": 48 * 1024,
    "P100": 16 * 1024,
    "P4": 8 * 1024,
    "RTX3090": 24 * 1024,
    "RTX4090": 24 * 1024,
    "RTX5090": 32 * 1024,
    "RTX6000ADA": 48 * 1024,
    "RTXPRO6000": 96 * 1024,
    "T4": 16 * 1024,
    "V100": 32 * 1024,
}

MAX_GPUS_PER_NODE = 16
"""The largest node built around one NVSwitch domain on a board (HGX-2)."""
