"""In the place of NVIDIA's C++ backend: the same declared tensors, responses out of a file.

responses.json beside this: first token of the prompt -> the stream's responses. `received.jsonl`
gets each request's tensors. What that backend refuses is refused, with its words where they are
known (build_engines/upstream/, and TensorRT-LLM's model_instance_state.cc and utils.cc).
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
HERE = Path(__file__).parent
REQUIRED_OUTPUTS = ("output_ids", "sequence_length")

OTHERS = {"responses": [{"ids": [75]}, {"ids": [76]}, {"ids": []}]}  # of prompts without a stream


class TritonPythonModel:
    def initialize(self, args) -> None:
        config = json.loads(args["model_config"])
        self._names = [tensor["name"] for tensor in config["input"]]
        self._streams = json.loads((HERE / "responses.json").read_text())
        self._stopped: set[str] = set()

    def execute(self, requests) -> None:
        for request in requests:
            given = self._given(request)
            with (HERE / "received.jsonl").open("a") as received:
                received.write(json.dumps({"id": request.request_id(), **given}) + "\n")
            sender = request.get_response_sender()
            if given.get("stop") == [True]:
                self._stopped.add(request.request_id())
                sender.send(flags=FINAL)
            elif (wrong := _wrong(given, request.requested_output_names())) is not None:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(wrong)), FINAL)
            else:
                play = (sender, request.request_id(), given)
                threading.Thread(target=self._play, args=play, daemon=True).start()

    def _given(self, request) -> dict:
        given = {}
        for name in self._names:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                values = tensor.as_numpy()
                flat = values.ravel().tolist()
                given[name] = [v.decode() if isinstance(v, bytes) else v for v in flat]
                given[f"{name}.shape"] = list(values.shape)
        return given

    def _play(self, sender, request_id: str, given: dict) -> None:
        stream = self._streams.get(str(given["input_ids"][0]), OTHERS)
        seen: list[float] = []
        for at, response in enumerate(stream["responses"]):
            time.sleep(stream.get("pause_s", 0.0))
            is_last = at == len(stream["responses"]) - 1
            if request_id in self._stopped:  # the executor still answers, with nothing
                response, is_last = {"ids": []}, True
            if "error" in response:
                error = pb_utils.TritonError(response["error"])
                sender.send(pb_utils.InferenceResponse(error=error), FINAL)
                return
            seen += response.get("log_probs", [])
            sender.send(_response(response["ids"], seen, given), FINAL if is_last else 0)
            if is_last:
                return


def _response(ids: list[int], log_probs: list[float], given: dict):
    tensors = {
        "output_ids": np.array([[ids]], dtype=np.int32),
        "sequence_length": np.array([[len(ids)]], dtype=np.int32),
    }
    if given.get("return_log_probs") == [True]:  # from the beginning, each time
        tensors["output_log_probs"] = np.array([[log_probs]], dtype=np.float32)
    if given.get("return_num_input_tokens") == [True]:
        tensors["num_input_tokens"] = np.array([given["input_lengths"]], dtype=np.int32)
    return pb_utils.InferenceResponse([pb_utils.Tensor(*pair) for pair in tensors.items()])


def _wrong(given: dict, outputs: list[str]) -> str | None:
    for name in REQUIRED_OUTPUTS:
        if name not in outputs:
            return f"{name} tensor must be present in list of output tensors"
    if given.get("streaming") != [True]:
        return "this double plays streams only"
    for name in ("stop_words_list", "bad_words_list"):
        if not _is_word_list(given.get(name, [])):
            return f"{name}: offsets must be increasing, and -1 after the last"
    return None


def _is_word_list(flat: list[int]) -> bool:
    if len(flat) % 2:
        return False
    ends = flat[len(flat) // 2 :]
    used = [end for end in ends if end != -1]
    return (
        used == sorted(set(used))
        and all(0 < end <= len(ends) for end in used)
        and ends[: len(used)] == used
    )
