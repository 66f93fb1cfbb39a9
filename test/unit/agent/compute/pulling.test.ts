import { pino } from "pino";
import { expect, test } from "vitest";
import { ensureImage, pullReason } from "../../../../src/agent/compute/pulling.ts";
import { Slots } from "../../../../src/agent/compute/slots.ts";
import { untilAborted } from "../../../../src/lib/until-aborted.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

test("a pull that goes on and on gives its place back after six hours", async () => {
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
])("%s is pulled with a credential for the registry that it names, and no other", async (reference, server) => {
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
])("why a pull failed is said once: %s", (message, reason) => {
  expect(pullReason("acme/app:1", message)).toBe(reason);
});
