"""What holds for every test: in CI nothing may be skipped (`MEDEVAC_TEST_NO_SKIP=1`, set by .ci/run)."""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
# xdist tells its workers that they have 80 columns, where tables fold; a pipe has no width.
os.environ["COLUMNS"] = "200"
NO_SKIP = os.environ.get("MEDEVAC_TEST_NO_SKIP") == "1"


def _not_skipped(report: Report) -> Report:
    # A contract asked of an adapter that offers none of its verbs leaves nothing to check, which is no check left out.
    nothing = "got empty parameter set" in str(report.longrepr)
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail") and not nothing:
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _not_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _not_skipped((yield))
