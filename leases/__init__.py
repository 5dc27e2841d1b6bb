"""Who reads which range, and how far they have got."""
