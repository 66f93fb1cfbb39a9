/** The types of events that only the control plane raises. */
export const CONTROL_PLANE_EVENTS = [
  "Configuration Change",
  "Connection Flapping",
  "Connection Timeout",
  "Control Plane Restored",
  "Identity Shared",
  "License Reused",
  "Message Too Large",
  "Node Connect",
  "Node Delete",
  "Node Disconnect",
  "Node Signature Refused",
  "Unauthorized IP",
] as const;
export type ControlPlaneEvent = (typeof CONTROL_PLANE_EVENTS)[number];

const RESERVED: ReadonlySet<string> = new Set(CONTROL_PLANE_EVENTS.map(lettersOf));

/** Reports whether a node must not send events of this type: it could clear the control plane's own alerts, or pass for another source. */
export function isReservedEvent(eventType: string): boolean {
  return isForeign(eventType) || RESERVED.has(lettersOf(eventType));
}

/** The audit category of what users do to nodes through the API. */
export const CONTROL_PLANE_AUDIT = "Node Action";
/** The audit category of what was done on the machine itself. */
export const LOCAL_AUDIT = "Local Action";

/** The category under which a node's own audit is kept: the control plane's is not the node's to use. */
export function nodeAuditCategory(category: string): string {
  return isForeign(category) || lettersOf(category) === lettersOf(CONTROL_PLANE_AUDIT) ? LOCAL_AUDIT : category;
}

/** Reports whether a name has characters beyond printable ASCII, since letters of other scripts look alike. */
function isForeign(name: string): boolean {
  return !/^[\x20-\x7e]*$/.test(name);
}

/** Only the letters and digits, so that neither capitals nor spaces nor look-alike forms make another word of it. */
function lettersOf(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[^a-z0-9|]/g, "")
    .replaceAll(/[1l|]/g, "i")
    .replaceAll("0", "o")
    .replaceAll("rn", "m")
    .replaceAll("vv", "w");
}
