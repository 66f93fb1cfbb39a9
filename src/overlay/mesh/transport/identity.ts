import { createPrivateKey, createPublicKey, sign, verify } from "node:crypto";
import { join } from "node:path";
import { z } from "zod";
import { InputError } from "../../../errors.ts";
import type { Files } from "../../../host/files/files.ts";
import { stateFile, valueOf } from "../../../host/files/state-file.ts";
import { selfSigned } from "../../../lib/formats/self-signed.ts";
import { OverlayIdentity } from "../../../protocol/overlay/mesh.ts";
import { meshContext, p256Thumbprint, type MeshIdentity } from "./tls.ts";
import { defined } from "../../../lib/defined.ts";

/** File in the overlay's state directory with its key and certificate. */
const IDENTITY_FILE = "identity.json";

const Stored = OverlayIdentity.extend({ certificate: z.string().max(8192) });
type Stored = z.infer<typeof Stored>;

/** Stores this node's identity with its certificate, so that a later start need not create one. */
export interface IdentityStore {
  /** Returns the stored identity; `damagedCopy` is the unusable file that was set aside. */
  load(): Promise<{ readonly identity?: MeshIdentity; readonly damagedCopy?: string }>;
  /**
   * Sets this node's identity. It applies even if it could not be saved; `notKept` is the error of saving.
   * @throws {InputError} `invalid-key` if it is not a P-256 key pair.
   */
  set(given: OverlayIdentity): Promise<{ readonly identity: MeshIdentity; readonly notKept?: unknown }>;
}

// RFC 5280 §4.1.2.5.2 and §4.1.2.5: dates are not checked, and clocks may be wrong.
const NOT_BEFORE = new Date("2000-01-01T00:00:00Z");
const NOT_AFTER = new Date("9999-12-31T23:59:59Z");

/** Stores an identity in a file of the state directory that only its owner can read. */
export function identityStore(files: Files, stateDir: string): IdentityStore {
  const stored = stateFile(files, { path: join(stateDir, IDENTITY_FILE), schema: Stored, keepsPrevious: false });
  const load: IdentityStore["load"] = async () => {
    const loaded = await stored.load();
    const value = valueOf(loaded);
    const identity = value === undefined ? undefined : tryOpen(value);
    const damagedCopy = loaded.is === "lost" ? loaded.damagedCopy : undefined;
    return defined({ identity, damagedCopy });
  };
  return {
    load,
    async set(given) {
      // An unreadable file counts as a different identity; the error shows again on writing.
      const before = await stored.load().then(valueOf, () => undefined);
      const isSame = before?.uid === given.uid && before.key.d === given.key.d && before.key.x === given.key.x;
      const known = isSame ? tryOpen(before) : undefined;
      if (known !== undefined) return { identity: known };
      const value = await certify(given);
      const identity = open(value);
      try {
        await stored.save(value);
        return { identity };
      } catch (notKept) {
        return { identity, notKept };
      }
    },
  };
}

async function certify(given: OverlayIdentity): Promise<Stored> {
  requirePair(given);
  const key = createPrivateKey({ key: given.key, format: "jwk" });
  const certificate = await selfSigned({ key, name: given.uid, notBefore: NOT_BEFORE, notAfter: NOT_AFTER });
  return { ...given, certificate };
}

/** Checks that the private and public key belong together; otherwise only peers would notice. */
function requirePair(given: OverlayIdentity): void {
  try {
    const key = createPrivateKey({ key: given.key, format: "jwk" });
    const { kty, crv, x, y } = given.key;
    const text = Buffer.from("holdfast");
    const publicKey = createPublicKey({ key: { kty, crv, x, y }, format: "jwk" });
    if (verify("sha256", text, publicKey, sign("sha256", text, key))) return;
  } catch (error) {
    throw new InputError("invalid-key", "the overlay key is not a P-256 key pair", { cause: error });
  }
  throw new InputError("invalid-key", "the private and public overlay key do not match");
}

function open({ uid, key: jwk, certificate }: Stored): MeshIdentity {
  const privateKey = createPrivateKey({ key: jwk, format: "jwk" });
  const pem = privateKey.export({ type: "pkcs8", format: "pem" });
  const key = p256Thumbprint(createPublicKey(privateKey));
  if (key === undefined) throw new InputError("invalid-key", "the overlay key is not a P-256 key");
  return { uid, key, context: meshContext(pem, certificate) };
}

function tryOpen(value: Stored): MeshIdentity | undefined {
  try {
    return open(value);
  } catch {
    return undefined;
  }
}
