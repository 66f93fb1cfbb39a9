const KEYS_LINE = /^release_keys=''$/m;

/** `install.sh` with the public keys that it trusts: an Ed25519 key's `x` is 43 characters of base64url. */
export function installerText(script: string, keys: readonly string[]): string {
  if (!KEYS_LINE.test(script)) throw new Error("scripts/install.sh has no place for keys");
  for (const key of keys) if (!/^[A-Za-z0-9_-]{43}$/.test(key)) throw new Error("a release key is no Ed25519 key");
  return script.replace(KEYS_LINE, `release_keys='${keys.join(" ")}'`);
}
