#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "view.h"

void text_add_bytes(struct text *text, const char *bytes, size_t length)
{
	size_t room = text->capacity - text->length;

	if (length > room)
		length = room;
	memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
}

void text_add(struct text *text, const char *format, ...)
{
	char line[512];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	if (length > 0)
		text_add_bytes(text, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}
