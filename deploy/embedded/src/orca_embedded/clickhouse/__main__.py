"""``python -m orca_embedded.clickhouse --data DIR``: see ``--help``."""

import sys

from orca_embedded.clickhouse import options, server

if __name__ == "__main__":
    sys.exit(server.main(options.parse()))
