/* The rows of /proc/net/tcp and /proc/net/tcp6, of which the kernel gives the listening sockets first. */
#ifndef PROC_NET_H
#define PROC_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct listener {
	uint16_t port;
	uint8_t words;       /* of the address: 1 is IPv4, 4 is IPv6 */
	uint8_t address[16]; /* as in the packets; zero beyond its words */
};

/* Reads one row without its end of line. False when it is not that of a listening socket. */
bool listener_read(const char *row, size_t size, struct listener *listener);

/* Whether a connection to 127.0.0.1 or ::1 would reach it. */
bool listener_on_loopback(const struct listener *listener);

#endif
