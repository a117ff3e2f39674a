"""What a training step costs and where: phases, stragglers, log rules."""
