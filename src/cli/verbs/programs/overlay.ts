import { DIRECTORIES } from "../../frame/verb-options.ts";
import type { VerbSpec } from "../../frame/verb.ts";

export const overlayVerb: VerbSpec = {
  name: "overlay",
  summary: "run the data plane of this node",
  about:
    "Carries the traffic of connectors and services, and goes on when the agent stops. SIGTERM lets its flows end first, for ten " +
    "minutes at most; a second one ends it at once.",
  arguments: [],
  options: {
    state: { value: "DIR", help: "its own state directory (/var/lib/holdfast-overlay)", complete: "directory" },
    run: { value: "DIR", help: "its own run directory (/run/holdfast-overlay)", complete: "directory" },
    successor: { help: "take over from the running overlay, without refusing or closing connections" },
    help: DIRECTORIES.help,
  },
  exits: ["ok", "failed", "usage"],
  example: "holdfast overlay --state /var/lib/holdfast-overlay --run /run/holdfast-overlay",
};
