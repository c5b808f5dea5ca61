/* Opens terminals until there are no more, says how many, and keeps them until it is killed. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void)
{
	struct rlimit descriptors;
	int count = 0;

	if (getrlimit(RLIMIT_NOFILE, &descriptors))
		return 1;
	descriptors.rlim_cur = descriptors.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &descriptors))
		return 1;
	while (open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
		count++;
	printf("%d\n", count);
	fflush(stdout);
	pause();
	return 0;
}
