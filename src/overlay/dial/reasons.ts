import { errnoOf } from "../../errors.ts";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";

/** Maps the error of a bind to a reason (bind(2), listen(2)). */
export function bindReason(error: unknown): OverlayReason {
  switch (errnoOf(error)) {
    case "EADDRINUSE":
      return "address-in-use";
    case "EADDRNOTAVAIL":
    case "EAFNOSUPPORT":
      return "address-absent";
    case "EACCES":
    case "EPERM":
      return "permission-denied";
    case "EMFILE":
    case "ENFILE":
    case "ENOBUFS":
    case "ENOMEM":
      return "out-of-resources";
    default:
      return "other";
  }
}

/** Maps the error of a connect to a reason (connect(2)); `hasSource` if a source address was set. */
export function connectReason(error: unknown, hasSource: boolean): OverlayReason {
  switch (errnoOf(error)) {
    case "ECONNREFUSED":
      return "connect-refused";
    case "ETIMEDOUT":
      return "connect-timeout";
    case "EADDRNOTAVAIL":
      // Without a source address it means that the kernel found no free port.
      return hasSource ? "unreachable" : "out-of-resources";
    case "EADDRINUSE":
    case "EMFILE":
    case "ENFILE":
    case "ENOBUFS":
    case "ENOMEM":
      return "out-of-resources";
    case "EHOSTUNREACH":
    case "ENETUNREACH":
    case "EHOSTDOWN":
    case "ENETDOWN":
    case "EINVAL":
    case "EAFNOSUPPORT":
    case "EACCES":
    case "EPERM":
      return "unreachable";
    case "ECONNRESET":
      return "reset";
    default:
      return "other";
  }
}

/** Maps the error of an open flow to a reason. */
export function flowReason(error: unknown): OverlayReason {
  switch (errnoOf(error)) {
    case "ECONNRESET":
    case "EPIPE":
    case "ECONNABORTED":
      return "reset";
    case "ETIMEDOUT":
    case "EHOSTUNREACH":
    case "ENETUNREACH":
      return "unreachable";
    case "ENOBUFS":
    case "ENOMEM":
      return "out-of-resources";
    default:
      return "other";
  }
}
