"""server_log: why tritonserver did not start, out of its real output."""

from __future__ import annotations

import pytest

from proxy.operate.triton_server import server_log

NOISE = """\
W1121 01:30:31.044508 29688 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory"
E1121 01:30:31.044727 29688 server.cc:241] "CudaDriverHelper has not been initialized."
"""
END = "error: creating server: Internal - failed to load all models\n"


@pytest.mark.parametrize(
    ("output", "reasons"),
    [
        (
            'E1121 01:30:31.4 9 backend_model.cc:692] "ERROR: Failed to create instance: '
            'ValueError: no file\\n\\nAt:\\n  /x/model.py(4): initialize\\n"\n'
            "E1121 01:30:31.4 9 model_lifecycle.cc:642] \"failed to load 'echo' version 1: "
            'Internal: ValueError: no file\\n\\nAt:\\n  /x/model.py(4): initialize\\n"\n',
            ["failed to load 'echo' version 1: Internal: ValueError: no file"],
        ),
        (
            "[libprotobuf ERROR text_format.cc:337] Error parsing: 5:46: Unknown value\n"
            'E1121 01:30:31.8 9 model_repository_manager.cc:1460] "Poll failed for model '
            "directory 'echo'\"\n",
            [
                "[libprotobuf ERROR text_format.cc:337] Error parsing: 5:46: Unknown value",
                "Poll failed for model directory 'echo'",
            ],
        ),
        ("bash: line 1: /a: No such file\n", ["bash: line 1: /a: No such file"]),
        (
            "terminate called after throwing an instance of 'lock_exception'\n  what():  a lock\n",
            ["terminate called after throwing an instance of 'lock_exception'"],
        ),
        ("", []),
    ],
)
def test_the_telling_lines_are_found(tmp_path, output, reasons):
    log = tmp_path / "log"
    log.write_text(NOISE + output + END)
    assert server_log.reasons(log) == reasons


def test_a_model_that_did_not_load_is_named_with_its_reason(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        NOISE + "E1121 01:30:31.4 9 model_lifecycle.cc:642] \"failed to load 'phi-3.5-mini_engine' "
        'version 1: Internal: Fail: no op Unheard\\n\\nAt:\\n"\n' + END
    )
    assert server_log.failed_load(log) == (
        "phi-3.5-mini_engine",
        "Internal: Fail: no op Unheard",
    )
    log.write_text(NOISE + END)
    assert server_log.failed_load(log) is None


def test_no_log_gives_no_reason(tmp_path):
    assert server_log.reasons(tmp_path / "none") == []
