import { z } from "zod";
import { LinkName, Text64, Text512, Text4096, UnixMilliseconds, Version } from "../values/values.ts";

/** The event that captures packets into files, and the permission that it needs, which no other implies. */
export const CAPTURE_EVENT = "tg-capture";
export const CAPTURE_PERMISSION = "node-advanced::service:tg-capture";

/** Characters of a filter: printable ASCII, as in pcap-filter(7). */
export const CaptureFilter = z
  .string()
  .max(512)
  .regex(/^[\x20-\x7e]*$/, "printable ASCII only")
  .transform((text) => text.trim());

const bounds = {
  maxMegabytes: z
    .int()
    .min(1)
    .max(1000)
    .default(100)
    .meta({ description: "Of all its files, in MB of 1,000,000 bytes; the oldest file gives way to a new one" }),
  maxSeconds: z.int().min(1).max(86_400).default(86_400).meta({ description: "It ends by itself after so long" }),
  packetCount: z
    .int()
    .min(0)
    .max(100_000_000)
    .default(0)
    .meta({ description: "It ends by itself after so many packets; 0: it does not" }),
};

export const TgCapture = z
  .discriminatedUnion("action", [
    z.strictObject({
      action: z.literal("start"),
      iface: LinkName,
      filter: CaptureFilter.default("").meta({ description: "Which packets, by pcap-filter(7)" }),
      ...bounds,
      deleteExisting: z
        .boolean()
        .default(false)
        .meta({ description: "Remove the files of earlier captures from the data store first" }),
    }),
    z.strictObject({ action: z.literal("stop") }),
    z.strictObject({ action: z.literal("status") }),
  ])
  .meta({ id: "TgCapture", description: "Body of `tg-capture`" });
export type TgCapture = z.infer<typeof TgCapture>;

/** The state of the last capture, and the files of all captures in the data store. */
export const CaptureAnswer = z
  .object({
    state: z.enum(["RUNNING", "STOPPED"]),
    /** The running capture, or the last one since the agent's start. */
    capture: z
      .object({
        iface: LinkName,
        filter: Text512,
        ...bounds,
        user: Text512.meta({ description: "Who started it" }),
        startedAt: UnixMilliseconds,
        endedAt: UnixMilliseconds.optional(),
        packets: Version,
        bytes: Version.meta({ description: "Of the files that it keeps" }),
        reason: z.object({ code: Text64, message: Text4096 }).optional().meta({
          description: "Why it ended: `stopped`, `time`, `packets`, `disk-full`, `interrupted`, `exec-failed`",
        }),
      })
      .optional(),
    files: z.array(z.object({ path: Text4096, bytes: Version })).max(10_000),
  })
  .meta({ id: "CaptureAnswer" });
export type CaptureAnswer = z.infer<typeof CaptureAnswer>;
