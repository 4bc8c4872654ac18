"""The tritonserver that is started here: checks, run folder, command line, process, supervision.

Called by `triton_openai.proxy.cli` only. Nothing here knows the proxy's inside, and nothing here imports grpc.
"""
