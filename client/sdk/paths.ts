/** A name as one segment of a URL's path. What is not valid Unicode names nothing, and reaches the server as such. */
export function segment(name: string): string {
  return encodeURIComponent(name.toWellFormed());
}

/** Where a sandbox lives in the API. */
export function sandboxPath(id: string): string {
  return `/v1/sandboxes/${segment(id)}`;
}
