/** Reports whether a text looks like a signed token (RFC 7515, 7.1), such as a license, which messages must not repeat. */
export function isCompactJws(text: string): boolean {
  return /^\s*eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?\s*$/.test(text);
}
