"""Who is in the fleet, which leases this host should own, and how it comes to own them."""
