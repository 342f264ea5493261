"""``python -m orca_metering``: run the service."""

from orca_runtime.service import run

from orca_metering.app import SERVICE
from orca_metering.settings import Settings

if __name__ == "__main__":
    run(SERVICE, Settings())
