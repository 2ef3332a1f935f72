"""Learning: the vector critic, the multipliers, the mixing rules and the game between them."""
