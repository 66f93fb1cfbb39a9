import { pino } from "pino";
import { expect, test } from "vitest";
import { ensureImage } from "../../../../src/agent/compute/pulling.ts";
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
