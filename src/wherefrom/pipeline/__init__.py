"""From inputs and a question to explanations: what is asked is settled, the model is run, the layers are joined."""
