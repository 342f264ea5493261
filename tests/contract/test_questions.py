"""The questions that are documented are those that the services answer, and in the same shapes."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from orca_admission.app import SERVICE as ADMISSION
from orca_billing.app import SERVICE as BILLING
from orca_metering.app import SERVICE as METERING
from orca_placement.app import SERVICE as PLACEMENT
from orca_runtime.service import Service
from orca_schemas.questions import QUESTIONS

SERVICES = (ADMISSION, PLACEMENT, METERING, BILLING)
OF_EVERY_SERVICE = ("status", "deadletters")
"""The runtime answers these for all of them."""

ANSWERED = {
    f"{service.name}.{name}": verb for service in SERVICES for name, verb in service.verbs.items()
}


def test_every_verb_is_documented_and_every_documented_verb_is_answered() -> None:
    """Given the services' verbs and the runtime's, QUESTIONS names exactly those."""
    common = {f"{service.name}.{verb}" for service in SERVICES for verb in OF_EVERY_SERVICE}
    assert set(QUESTIONS) == ANSWERED.keys() | common


@pytest.mark.parametrize("name", sorted(ANSWERED))
def test_a_verb_takes_and_gives_what_is_documented(name: str) -> None:
    """Given a verb, its query and its answer are the documented classes."""
    verb: Any = ANSWERED[name]
    assert verb.query is QUESTIONS[name].query
    assert get_type_hints(verb.answer)["return"] is QUESTIONS[name].answer


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_service_is_called_as_its_role(service: Service) -> None:
    """Given a service, its name is the role that its subjects carry."""
    assert service.name == service.decider.role.value
