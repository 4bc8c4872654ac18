"""The `onnx` runtime: in-flight batching on a CPU with ONNX Runtime.

runtime.py owns the thread, scheduler.py is one step of it: row_allocator.py decides which sequences
run, prefill.py feeds prompts, decoder.py runs the model, sequence_output.py samples and reports.
"""
