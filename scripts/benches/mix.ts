import { randomBytes } from "node:crypto";
import { nodeMethods, controlMethods } from "../../src/protocol/channel/methods.ts";

/** The methods of the mix, whoever calls them. */
export const mixedMethods = {
  heartbeat: nodeMethods.heartbeat,
  "shadow.report": nodeMethods["shadow.report"],
  "telemetry.push": nodeMethods["telemetry.push"],
  "trigger.run": controlMethods["trigger.run"],
} as const;

/** Number of each among eight messages of a busy session. Any number of reports or events comes in one message. */
const WEIGHTS: Readonly<Record<keyof typeof mixedMethods, number>> = {
  heartbeat: 4,
  "trigger.run": 2,
  "shadow.report": 1,
  "telemetry.push": 1,
};

/** Returns the messages of a busy session in their proportions, as JSON text. */
export function mixedMessages(): readonly string[] {
  return oneOfEach().flatMap(({ method, text }) => Array.from({ length: WEIGHTS[method] }, () => text));
}

/** One message of each kind: a heartbeat, a report of 60 keys, 20 events and a trigger. */
export function oneOfEach(): readonly { readonly method: keyof typeof mixedMethods; readonly text: string }[] {
  const at = 1_790_000_000_000;
  const heartbeat = {
    seq: 4711,
    at,
    uptimeSeconds: 86_400.5,
    load: 0.42,
    memory: { totalBytes: 8_000_000_000, availableBytes: 5_000_000_000 },
    disk: { totalBytes: 64_000_000_000, freeBytes: 32_000_000_000, usedRatio: 0.5 },
    sessionRttMs: 12.5,
    overlay: "UP",
    queue: { records: 3, dropped: 0 },
  };
  const set: Record<string, string | number> = Object.fromEntries(
    Array.from({ length: 15 }, (_, i): [string, string | number][] => [
      [`interface.eth${i}.mac`, "02:00:00:00:00:01"],
      [`interface.eth${i}.addresses`, `192.0.2.${i}/24, 2001:db8::${i}/64`],
      [`interface.eth${i}.mtu`, 1500],
      [`interface.eth${i}.state`, "up"],
    ]).flat(),
  );
  const records = Array.from({ length: 20 }, (_, i) => ({
    eventType: "Network Link",
    level: "WARNING",
    message: `Link eth${i} has lost its carrier`,
    timestamp: Math.floor(at / 1000) + i,
    state: "EXCEEDED",
    details: { link: `eth${i}`, carrier: false },
  }));
  const part = (bytes: number): string => randomBytes(bytes).toString("base64url");
  const messages = [
    { method: "heartbeat", params: heartbeat },
    { id: 1, method: "shadow.report", params: { version: 8, base: 7, set, unset: ["cpu.old"] } },
    { id: 2, method: "telemetry.push", params: { stream: "events", first: 1, records } },
    { id: 3, method: "trigger.run", params: { jws: `${part(90)}.${part(420)}.${part(64)}` } },
  ] as const;
  return messages.map((message) => ({
    method: message.method,
    text: JSON.stringify({ jsonrpc: "2.0", ...message }),
  }));
}
