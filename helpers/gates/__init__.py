"""Which keys tell a fact's other wordings from other prompts: an audit of gates, without any edit."""
