/** Single passes over a row of logits. Rows are read in place: they belong to the backend. NaN never wins. */

import { CodedError } from "@kvasir/kit";

/** The error of a row that no token can be chosen from. */
function unusableRow(logits: Float32Array): CodedError {
  let notNumbers = 0;
  for (const logit of logits) if (Number.isNaN(logit)) notNumbers++;
  return new CodedError(
    "decode_failed",
    notNumbers === logits.length
      ? `The model returned NaN for all ${logits.length} tokens, so none can be chosen. The weights or the device may be faulty: try another device or check the model file.`
      : `No token is possible: ${logits.length - notNumbers} of ${logits.length} logits are -Infinity and ${notNumbers} are NaN. Relax logit_bias, or check the model file.`,
  );
}

/**
 * Index of the largest logit, the lowest index among equals.
 * @throws CodedError decode_failed when every logit is NaN or -Infinity
 */
export function mostLikely(logits: Float32Array): number {
  let best = -1;
  let bestLogit = Number.NEGATIVE_INFINITY;
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token] as number;
    if (logit > bestLogit) {
      bestLogit = logit;
      best = token;
    }
  }
  if (best < 0) throw unusableRow(logits);
  return best;
}
