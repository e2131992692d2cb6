"""The agent loop: it builds each prompt, asks the model, and asks brokerd for every tool call."""
