"""What is served: public name -> ModelCard, from models.yaml and from what Triton has loaded."""
