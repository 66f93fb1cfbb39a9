import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { signJws } from "../../../src/protocol/channel/jws.ts";
import type { ReleaseClaims } from "../../../src/protocol/documents/release.ts";
import { checkHere } from "../../../src/upgrade/check-here.ts";
import { signingKey } from "../../support/control-plane/signing.ts";
import { tempDir } from "../../support/temp-dir.ts";

const NEW = "0.1.20261121-1830";
const now = Math.floor(Date.now() / 1000);
const file = { name: "holdfast.tar.xz", size: 1, unpackedSize: 1, sha256: "0".repeat(64) };
const claims: ReleaseClaims = {
  product: "holdfast",
  version: NEW,
  build: "20261121-183000.0123456789ab",
  iat: now - 10,
  exp: now + 3600,
  minVersion: "0.0.00000000-0000",
  files: { amd64: file, arm64: { ...file, name: "arm64.tar.xz", sha256: "1".repeat(64) } },
};

/** A manifest on this machine, signed by a key that the package trusts. */
async function offered(changes: Partial<ReleaseClaims> = {}) {
  const dir = tempDir();
  const key = await signingKey();
  const [packagePath, versionsPath, from] = [join(dir, "lib"), join(dir, "versions"), join(dir, "manifest.jws")];
  mkdirSync(packagePath);
  mkdirSync(versionsPath);
  writeFileSync(join(packagePath, "release-keys.json"), JSON.stringify({ keys: [key.publicKey] }));
  writeFileSync(from, `${await signJws("holdfast-release+jwt", { ...claims, ...changes }, key)}\n`);
  return { from, packagePath, versionsPath, targets: undefined, isForced: false };
}

const { signal } = new AbortController();

describe("the offer of a manifest", () => {
  test("is reported with whether it would be installed", async () => {
    expect(await checkHere(await offered(), signal)).toEqual({ version: NEW, build: claims.build, isTaken: true });
  });

  test("is reported with why it would not, unless forced", async () => {
    const options = await offered();
    writeFileSync(join(options.versionsPath, `${NEW}.failed`), '{"code":"crashed","message":"three times"}');
    expect(await checkHere(options, signal)).toMatchObject({ isTaken: false, reason: { code: "failed-before" } });
    expect(await checkHere({ ...options, isForced: true }, signal)).toMatchObject({ isTaken: true });
  });

  test("is reported at once when unavailable", async () => {
    const options = await offered();
    await expect(checkHere({ ...options, from: "http://127.0.0.1:9/manifest.jws" }, signal)).rejects.toHaveProperty(
      "code",
    );
  });
});
