import { z } from "zod";
import { ConfigShowRequest, PlanDocument, RollbackRequest } from "./reconcile.ts";
import { Host, IpAddress, LinkName, Port } from "./values.ts";

export const TgPing = z
  .object({ host: Host, source: IpAddress.optional(), count: z.int().min(1).max(600).optional() })
  .meta({ id: "TgPing", description: "Body of `tg-ping`" });
export type TgPing = z.infer<typeof TgPing>;

export const TgNc = z
  .object({ host: Host, port: Port, source: IpAddress.optional() })
  .meta({ id: "TgNc", description: "Body of `tg-nc`" });
export type TgNc = z.infer<typeof TgNc>;

/** The node holds `filter` to the flags that cannot do harm. */
export const TgTracerouteBody = z
  .object({
    host: Host,
    filter: z.string().max(256).prefault("-n").meta({ description: "Flags of traceroute(8), divided by spaces" }),
    iface: LinkName.optional(),
  })
  .meta({ id: "TgTraceroute", description: "Body of `tg-traceroute`" });

export const SpeedTest = z
  .object({ action: z.enum(["download", "upload", "both"]).default("both") })
  .meta({ id: "SpeedTest", description: "Body of `speed-test`" });
export type SpeedTest = z.infer<typeof SpeedTest>;

/** The body of each event that needs one, for whoever describes events. */
export const triggerBodies = {
  "tg-ping": TgPing,
  "tg-nc": TgNc,
  "tg-traceroute": TgTracerouteBody,
  "speed-test": SpeedTest,
  plan: PlanDocument,
  rollback: RollbackRequest,
  "config-show": ConfigShowRequest,
} as const;
