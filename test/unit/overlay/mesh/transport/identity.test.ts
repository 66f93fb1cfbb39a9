import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { identityStore } from "../../../../../src/overlay/mesh/transport/identity.ts";
import { thumbprint } from "../../../../../src/protocol/values/keys.ts";
import { overlayIdentity } from "../../../../support/overlay/mesh-identity.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

function store(directory = tempDir()) {
  return { directory, path: join(directory, "identity.json"), identities: identityStore(hostFiles(), directory) };
}

describe("the identity of a node", () => {
  it("is stored with its certificate, for its owner only, and loaded again", async () => {
    const { directory, path, identities } = store();
    expect(await identities.load()).toEqual({});
    const given = overlayIdentity();
    const { identity, notKept } = await identities.set(given);
    expect([identity.uid, identity.key, notKept]).toEqual([given.uid, await thumbprint(given.key), undefined]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const loaded = await identityStore(hostFiles(), directory).load();
    expect([loaded.identity?.uid, loaded.identity?.key]).toEqual([given.uid, identity.key]);
    const before = statSync(path).mtimeMs;
    await identities.set(given);
    expect(statSync(path).mtimeMs).toBe(before);
  });

  it("is replaced by another", async () => {
    const { identities } = store();
    await identities.set(overlayIdentity());
    const given = overlayIdentity();
    await identities.set(given);
    expect((await identities.load()).identity?.uid).toBe(given.uid);
  });

  it("is set aside when damaged, and can be set again", async () => {
    const { path, identities } = store();
    const given = overlayIdentity();
    await identities.set(given);
    writeFileSync(path, "{}");
    expect(await identities.load()).toEqual({ damagedCopy: `${path}.damaged` });
    expect((await identities.set(given)).identity.uid).toBe(given.uid);
  });

  it("is applied even if it cannot be saved", async () => {
    const { directory, identities } = store();
    rmSync(directory, { recursive: true });
    writeFileSync(directory, "");
    const { identity, notKept } = await identities.set(overlayIdentity());
    expect(identity.key).toHaveLength(43);
    expect(notKept).toBeInstanceOf(Error);
    rmSync(directory);
    mkdirSync(directory);
  });

  it.each([
    ["halves of two keys", () => ({ ...overlayIdentity().key, d: overlayIdentity().key.d })],
    ["no point of the curve", () => ({ ...overlayIdentity().key, x: "A".repeat(43) })],
  ])("is none for %s", async (_, key) => {
    const { identities } = store();
    await expect(identities.set({ ...overlayIdentity(), key: key() })).rejects.toMatchObject({ code: "invalid-key" });
    expect(await identities.load()).toEqual({});
  });
});
