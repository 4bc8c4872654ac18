"""Questions about this project and their answers, taken from its README."""

# ruff: noqa: E501  (words and sentences read best as plain text)

from __future__ import annotations

from demo_model.training.lexicon import Lexicon
from demo_model.training.smalltalk import worn

ABOUT: tuple[tuple[str, str], ...] = (
    (
        "What is this project?|What does this project do?|Tell me about this project|Describe this project|What is this?"
        "|What is this server?|Explain this project|What is triton-openai?|What does triton-openai do?|What is this project about?",
        "This project is a Triton model repository for language models and a FastAPI proxy that speaks the OpenAI API.",
    ),
    (
        "What is Triton?|What is Triton Inference Server?|What does Triton do?|Explain Triton",
        "Triton Inference Server is NVIDIA's server for models. Here it runs a tokenizer, an engine and a detokenizer as one ensemble.",
    ),
    (
        "What is the proxy?|What does the proxy do?|How does the proxy work?",
        "The proxy takes OpenAI requests, sends each one to Triton as a gRPC stream, and streams the answer back.",
    ),
    (
        "What is the ensemble?|How does the ensemble work?|What is in the model repository?|What are the parts of the ensemble?",
        "The ensemble joins three models: a tokenizer, an engine and a detokenizer.",
    ),
    (
        "How do I add a model?|How can I add a model?|How to add a model?|How do I add another model?|How do I serve my own model?"
        "|How do I add my own model?|How do I use another model?|Where do I add a model?|I want to add a model"
        "|How can I serve another model?|Add a model",
        "Add an entry for it to models.yaml, then run triton-openai build with the name of the model.",
    ),
    (
        "How do I build a model?|How can I build an engine?|How do I build an engine?|What does build do?",
        "Run triton-openai build with the name of a model from models.yaml.",
    ),
    (
        "How do I use a GPU?|How do I point it at a GPU?|How can I run it on a GPU?|How do I run this on a GPU?|Can it use a GPU?"
        "|How to use a GPU?|How do I point a model at a GPU?|How do I use TensorRT-LLM?|Does it run on a GPU?|How do I serve on NVIDIA GPUs?",
        "Set the runtime to tensorrt_llm in models.yaml and run it in NVIDIA's tritonserver container.",
    ),
    (
        "Do I need a GPU?|Does it run without a GPU?|Can it run on a laptop?|Can it run on a CPU?|Can I run it without a GPU?",
        "No GPU is needed. On a laptop the same ensemble runs with an ONNX engine on the CPU.",
    ),
    (
        "What are the endpoints?|Which endpoints are there?|List the endpoints|What endpoints do you have?|What is the API?"
        "|Which routes does the server have?|Which endpoints does it have?|What endpoints does this server have?|Show me the endpoints",
        "The endpoints are /v1/models, /v1/chat/completions, /v1/completions, /health/live, /health/ready and /metrics.",
    ),
    (
        "How do I start the server?|How do I start it?|How do I run it?|How do I run this?|How can I serve the model?|How do I start?"
        "|How do I serve it?|How do I run the server?|How do I get started?|How do I begin?",
        "Run make serve. The server then listens at http://127.0.0.1:9000/v1.",
    ),
    (
        "How do I run the tests?|How can I test it?|How do I test it?|Where are the tests?|How do I run the test suite?",
        "Run make test.",
    ),
    (
        "What is the base URL?|What is the address of the server?|Which port does it use?|What is the port?|Where is it served?"
        "|Where does the server listen?|What is the URL?|Which URL do I use?",
        "The base URL is http://127.0.0.1:9000/v1.",
    ),
    (
        "Which commands are there?|What are the commands?|What are the two commands?|Which make targets are there?",
        "There are two commands: make serve starts the server and make test runs the tests.",
    ),
    (
        "How do I check the health?|How do I know that it is ready?|Is the server ready?|How do I check that the server is up?|Health check",
        "Ask /health/live to see that it lives and /health/ready to see that it is ready.",
    ),
    (
        "Where are the metrics?|How do I see the metrics?|Are there metrics?|Does it have Prometheus metrics?|How do I monitor it?",
        "The metrics are at /metrics in the Prometheus format.",
    ),
    (
        "Which models are there?|Which models can I use?|How do I list the models?|List the models|What models do you have?",
        "Ask /v1/models for the list of models. The model that comes with the project is called demo.",
    ),
    (
        "Can I use the OpenAI SDK?|How do I use the OpenAI client?|How do I connect a client?|Does my OpenAI client work?"
        "|How do I call the API?|How do I use the OpenAI SDK?",
        "Yes. Point the OpenAI SDK at http://127.0.0.1:9000/v1 and use the model demo.",
    ),
    (
        "Does it support streaming?|Can it stream?|How do I stream?|Do you support streaming?",
        "Yes. Set stream to true and the answer comes as server-sent events.",
    ),
    (
        "Does it support tools?|Can it call tools?|Do you support function calling?|Does it support tool calls?|Can you call tools?",
        "Yes. Pass tools with the request and the model answers with tool calls.",
    ),
    (
        "What is the license?|Is it free?|Is this open source?|Is it open source?",
        "Yes, this project is open source.",
    ),
)


def about(lexicon: Lexicon) -> tuple[str, str]:
    asked, answer = lexicon.rng.choice(ABOUT)
    return worn(lexicon, lexicon.rng.choice(asked.split("|"))), answer
