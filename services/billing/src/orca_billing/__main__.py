"""``python -m orca_billing``: run the service."""

from orca_runtime.service import run

from orca_billing.app import SERVICE
from orca_billing.settings import Settings

if __name__ == "__main__":
    run(SERVICE, Settings())
