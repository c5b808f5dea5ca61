type Entry = readonly [key: string, value: unknown];

/**
 * In JSON, an object with one key, a mark such as `$bytes`, stands for what JSON cannot hold. These are the fields of another object as they
 * are written: one that looks like a mark gets a `$` more.
 */
export function escaped(fields: readonly Entry[], mark: string): readonly Entry[] {
  const only = onlyLike(fields, mark);
  return only === undefined ? fields : [[`$${only[0]}`, only[1]]];
}

/** The inverse of `escaped`, for an object that is not a mark itself. */
export function unescaped(fields: readonly Entry[], mark: string): readonly Entry[] {
  const only = onlyLike(fields, mark);
  return only === undefined || only[0] === mark ? fields : [[only[0].slice(1), only[1]]];
}

function onlyLike(fields: readonly Entry[], mark: string): Entry | undefined {
  const [first] = fields;
  if (fields.length !== 1 || first === undefined || !first[0].endsWith(mark)) return undefined;
  return /^\$*$/.test(first[0].slice(0, -mark.length)) ? first : undefined;
}
