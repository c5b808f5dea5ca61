/** Where a sandbox lives in the API. */
export function sandboxPath(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}
