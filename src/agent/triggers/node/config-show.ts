import type { Config } from "../../../protocol/documents/documents.ts";
import { ConfigShowRequest } from "../../../protocol/documents/reconcile.ts";
import { hideSecrets } from "../../../protocol/documents/secrets.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Returns the applied configuration, or one section, with every secret as the empty string. */
export function configShow(config: () => Config): OneShotTrigger<ConfigShowRequest> {
  return {
    event: "config-show",
    kind: "one-shot",
    request: ConfigShowRequest,
    deadlineMs: 10_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    handle({ section }) {
      const shown = hideSecrets(config());
      if (section === undefined) return Promise.resolve(shown);
      return Promise.resolve(shown[section] === undefined ? {} : { [section]: shown[section] });
    },
  };
}
