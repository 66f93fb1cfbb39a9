import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { ensureImage, pullReason } from "../../../../../src/agent/containers/images/pulling.ts";
import { Slots } from "../../../../../src/agent/containers/model/slots.ts";
import { HostError } from "../../../../../src/errors.ts";
import { untilAborted } from "../../../../../src/lib/async/until-aborted.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

test("releases the slot of a pull after six hours", async () => {
  const clock = new FakeClock();
  const slots = new Slots(1);
  let dribble = (): void => undefined;
  const pulled = ensureImage(
    {
      engine: {
        inspectImage: () => Promise.resolve(undefined),
        pull: (_reference, { onProgress }, signal) => {
          dribble = () => onProgress?.({ layer: "a", status: "Downloading", current: 1, total: 1e9 });
          return untilAborted(new Promise<void>(() => undefined), signal);
        },
      },
      ledger: { images: new Map(), putImage: () => undefined },
      clock,
      log: pino({ level: "silent" }),
      slots,
      credential: () => Promise.resolve(undefined),
      space: () => undefined,
      platform: () => Promise.resolve("linux/amd64"),
    },
    {
      image: { reference: "team/app:1", repository: "team/app", isFromRegistry: false, isPinned: false },
      isLocalEnough: false,
      onPulling: () => undefined,
      onProgress: () => undefined,
    },
    new AbortController().signal,
  );
  const refused = expect(pulled).rejects.toMatchObject({
    code: "pull-failed",
    message: expect.stringContaining("6 hours") as unknown,
  });
  for (let minute = 0; minute <= 360; minute += 1) {
    await clock.advance(60_000);
    dribble();
  }
  await refused;
  await expect(slots.run(new AbortController().signal, () => Promise.resolve("free"))).resolves.toBe("free");
});

test.each([
  ["registry.example:5000/team/app:1", "registry.example:5000"],
  ["former.example/team/app:1", undefined],
])("pulls %s with a credential for its registry only", async (reference, server) => {
  const given: unknown[] = [];
  await ensureImage(
    {
      engine: {
        inspectImage: () =>
          Promise.resolve(given.length === 0 ? undefined : { id: "sha256:1", digests: [], tags: [], sizeBytes: 1 }),
        pull: (_reference, { credential }) => Promise.resolve(void given.push(credential?.server)),
      },
      ledger: { images: new Map(), putImage: () => undefined },
      clock: new FakeClock(),
      log: pino({ level: "silent" }),
      slots: new Slots(1),
      credential: () => Promise.resolve({ username: "node", password: "secret", server: "registry.example:5000" }),
      space: () => undefined,
      platform: () => Promise.resolve("linux/amd64"),
    },
    {
      image: { reference, repository: "team/app", isFromRegistry: true, isPinned: false },
      isLocalEnough: false,
      onPulling: () => undefined,
      onProgress: () => undefined,
    },
    new AbortController().signal,
  );
  expect(given).toEqual([server]);
});

test.each([
  [
    "cannot pull acme/app:1: manifest for acme/app:1 not found: manifest unknown: manifest unknown",
    "manifest for acme/app:1 not found: manifest unknown",
  ],
  [
    "cannot pull acme/app:1: pull access denied for acme/app, repository does not exist: denied: requested access is denied",
    "pull access denied for acme/app, repository does not exist: requested access is denied",
  ],
  ["cannot pull acme/app:1: unauthorized: authentication required", "unauthorized: authentication required"],
  ['Get "https://x:5000/v2/": dial tcp: no such host', 'Get "https://x:5000/v2/": dial tcp: no such host'],
  ["the registry says\n nothing", "the registry says nothing"],
])("reports the reason of a failed pull once: %s", (message, reason) => {
  expect(pullReason("acme/app:1", message)).toBe(reason);
});

test.each<[string, boolean, string | undefined, string]>([
  [
    "registry.example:5000/team.example/app:1",
    true,
    "registry.example:5000",
    "denied (asked registry.example:5000 with the node's credential)",
  ],
  [
    "registry.example:5000/team.example/app:1",
    true,
    undefined,
    "denied (asked registry.example:5000 without a credential: the control plane gave none)",
  ],
  [
    "former.example/team.example/app:1",
    true,
    "registry.example:5000",
    "denied (asked former.example without a credential: the one that the control plane gave is for registry.example:5000)",
  ],
  [
    "typed.example/team.example/app:1",
    false,
    undefined,
    "denied (asked typed.example without a credential: it is not the organization's registry registry.example:5000; if the image is there, write its repository without a registry, as team.example/app)",
  ],
  [
    "vendor/app@sha256:1",
    false,
    undefined,
    "denied (asked the engine's default registry (docker.io) without a credential: it is not the organization's registry registry.example:5000; if the image is there, write its repository as team.example/...)",
  ],
])("a failed pull of %s names the registry and the credential used (%s, %s)", async (...given) => {
  const [reference, isFromRegistry, server, reason] = given;
  const denied = new HostError("pull-unauthorized", `cannot pull ${reference}: denied`);
  const pulled = ensureImage(
    {
      engine: { inspectImage: () => Promise.resolve(undefined), pull: () => Promise.reject(denied) },
      ledger: { images: new Map(), putImage: () => undefined },
      clock: new FakeClock(),
      log: pino({ level: "silent" }),
      slots: new Slots(1),
      credential: () =>
        Promise.resolve(server === undefined ? undefined : { username: "node", password: "secret", server }),
      registry: () => ({ host: "registry.example:5000", namespace: "team.example" }),
      space: () => undefined,
      platform: () => Promise.resolve(""),
    },
    {
      image: { reference, repository: "app", isFromRegistry, isPinned: false },
      isLocalEnough: false,
      onPulling: () => undefined,
      onProgress: () => undefined,
    },
    new AbortController().signal,
  );
  const message = `pull of ${reference} failed: ${reason}`;
  await expect(pulled).rejects.toMatchObject({ code: "pull-failed", message });
});

describe("on a machine of linux/arm64", () => {
  const request = {
    image: { reference: "team/app:1", repository: "team/app", isFromRegistry: false, isPinned: true },
    isLocalEnough: true,
    onPulling: () => undefined,
    onProgress: () => undefined,
  };

  /** Ensures an image that is present for `local`, and in the registry for `remote`. */
  async function ensured(local: string | undefined, remote: string | HostError) {
    let platform = local;
    const requested: string[] = [];
    const options = {
      engine: {
        inspectImage: () =>
          Promise.resolve(
            platform === undefined ? undefined : { id: platform, digests: [], tags: [], sizeBytes: 1, platform },
          ),
        pull: (_reference: string, pull: { readonly platform: string }) => {
          requested.push(pull.platform);
          if (remote instanceof HostError) return Promise.reject(remote);
          platform = remote;
          return Promise.resolve();
        },
      },
      ledger: { images: new Map(), putImage: () => undefined },
      clock: new FakeClock(),
      log: pino({ level: "silent" }),
      slots: new Slots(1),
      credential: () => Promise.resolve(undefined),
      space: () => undefined,
      platform: () => Promise.resolve("linux/arm64"),
    };
    const result = await ensureImage(options, request, new AbortController().signal).catch((error: unknown) => error);
    return { requested, result };
  }

  test("requests an image by that platform", async () => {
    expect(await ensured(undefined, "linux/arm64")).toEqual({ requested: ["linux/arm64"], result: "linux/arm64" });
  });

  test.each(["linux/arm64", "linux/arm"])("accepts a present image for %s", async (platform) => {
    expect(await ensured(platform, "linux/arm64")).toEqual({ requested: [], result: platform });
  });

  test("replaces an image for another platform by that of the registry", async () => {
    expect(await ensured("linux/amd64", "linux/arm64")).toEqual({ requested: ["linux/arm64"], result: "linux/arm64" });
  });

  test.each([
    [undefined, "linux/amd64", "image team/app:1 is for linux/amd64 and this machine is linux/arm64"],
    [undefined, new HostError("image-platform", "no matching manifest for linux/arm64"), "no matching manifest"],
    ["linux/amd64", new HostError("pull-failed", "connection refused"), "is for linux/amd64.*connection refused"],
  ])("an image that exists only for another platform is a reason of its own (%s, %s)", async (local, remote, words) => {
    const { result } = await ensured(local, remote);
    expect(result).toMatchObject({ code: "image-platform", message: expect.stringMatching(words) as unknown });
  });
});

test("a pull fails with disk-full when the layers do not fit on the disk", async () => {
  const full = new HostError("pull-no-space", "cannot pull team/app:1: write /var/lib/x: no space left on device");
  const pulled = ensureImage(
    {
      engine: { inspectImage: () => Promise.resolve(undefined), pull: () => Promise.reject(full) },
      ledger: { images: new Map(), putImage: () => undefined },
      clock: new FakeClock(),
      log: pino({ level: "silent" }),
      slots: new Slots(1),
      credential: () => Promise.resolve(undefined),
      space: () => undefined,
      platform: () => Promise.resolve(""),
    },
    {
      image: { reference: "team/app:1", repository: "team/app", isFromRegistry: false, isPinned: false },
      isLocalEnough: false,
      onPulling: () => undefined,
      onProgress: () => undefined,
    },
    new AbortController().signal,
  );
  await expect(pulled).rejects.toMatchObject({ code: "disk-full" });
});
