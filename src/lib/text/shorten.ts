/** Returns a text of at most `most` characters; a longer one is cut and ends with an ellipsis. */
export function shorten(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
