import type { OverlayFlow, Place } from "./overlay.ts";
import { defined } from "../../lib/defined.ts";

/** The details of a flow beyond its addresses, for records and lists. Pure. */
export function flowMeta({ id, connector, service, backend, origin, reason }: OverlayFlow): Record<string, string> {
  return {
    ...defined({ flow: id }),
    ...(connector === "" ? {} : { connector }),
    service,
    ...(backend === undefined ? {} : { backend: placeText(backend) }),
    ...(origin === undefined ? {} : { origin: placeText(origin) }),
    ...defined({ reason }),
  };
}

function placeText({ ip, port }: Place): string {
  return ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
}
