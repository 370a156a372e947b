"""Who is to blame: pairs, rounds, suspects."""
