"""Operations on leases that some other process may own: pause, resume, release."""
