"""`concertina-run`: starts the ranks of a node, standbys, and the membership authority."""
