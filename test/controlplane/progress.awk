# Counts the packages that go build -v names, and prints every other line as it is, such as an error.
/^[A-Za-z0-9][^ :]*$/ {
  if (++n % 100 == 0) { printf "  %d of at most %d packages\n", n, total; fflush() }
  next
}
{ print; fflush() }
