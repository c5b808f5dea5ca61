#ifndef CRADLE_PLACE_H
#define CRADLE_PLACE_H

/*
 * Where to mount in an image that nobody trusts. Both return an open descriptor of the place, or -1 with errno, and make the
 * place when the image lacks it. Neither ever leaves the file system that `root` is the root of.
 */

/* A directory directly below the root. A link in its place is refused: it could stand for any other part of the image. */
int place_dir(int root, const char *name);

/* `<dir>/<name>`: links are followed within the image; one that leads nowhere is replaced by an empty file. */
int place_file(int root, const char *dir, const char *name);

#endif
