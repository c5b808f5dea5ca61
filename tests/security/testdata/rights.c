/* Prints the ids it acts with: as a setuid program, those of its owner. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("%u %u\n", getuid(), geteuid());
	return 0;
}
