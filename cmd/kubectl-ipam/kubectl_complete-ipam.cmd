@rem kubectl runs this program to complete the arguments of "kubectl ipam". It must be in a directory of PATH, as kubectl-ipam.exe.
@kubectl-ipam.exe __complete %*
