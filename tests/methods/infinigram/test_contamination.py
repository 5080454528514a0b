from types import SimpleNamespace

import pytest

from harness.common.statistics import wilson
from methods.infinigram.contamination import Decontamination


@pytest.mark.parametrize(("left_out", "documents"), [(0, 600), (3, 40), (7, 7)])
def test_the_share_left_out_has_an_interval_that_even_no_document_does_not_end_at_zero(left_out, documents):
    setting = SimpleNamespace(filtered={"": lambda: (documents, left_out)})
    found = Decontamination()(setting, None, None)
    share = found["left_out_percent"]
    assert share.value == 100 * left_out / documents
    assert [share.low, share.high] == [100 * end for end in wilson(left_out, documents)]
    assert share.low < share.high


def test_no_documents_leave_the_share_open():
    share = Decontamination()(SimpleNamespace(filtered={"": lambda: (0, 0)}), None, None)["left_out_percent"]
    assert (share.value, share.low, share.high) == (0, 0, 100)
