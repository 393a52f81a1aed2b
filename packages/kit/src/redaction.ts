/** Secrets never reach a log, a state file or a printed configuration: only that one was set. */

export const redacted = "[redacted]";

const secretName = /(api[-_]?key|secret|password|passphrase|authorization|(?:^|[-_])token|(?:hf|auth|access|bearer)token)$/i;

/** Whether an option, variable or key of this name holds a secret. `apiKeyFile` names a file and does not. */
export function isSecretName(name: string): boolean {
  return secretName.test(name);
}

/** User information in a URL: `https://user:pass@host` → `https://[redacted]@host`. */
export function redactUrls(text: string): string {
  return text.replace(/\b([a-z][a-z0-9+.-]*:\/\/)[^\s/@]+@/gi, `$1${redacted}@`);
}

/** A command line: values of secret flags, as `--flag value` and as `--flag=value`. */
export function redactArguments(argv: readonly string[]): string[] {
  let previousIsSecret = false;
  return argv.map((argument) => {
    const hidden = previousIsSecret;
    const [flag = "", ...value] = argument.split("=");
    const isFlag = flag.startsWith("--") && isSecretName(flag.slice(2));
    previousIsSecret = isFlag && value.length === 0;
    if (hidden) return redacted;
    return isFlag && value.length > 0 ? `${flag}=${redacted}` : redactUrls(argument);
  });
}

/** A deep copy of plain data in which every non-empty value under a secret name is hidden. */
export function redactRecord(value: unknown): unknown {
  if (typeof value === "string") return redactUrls(value);
  if (Array.isArray(value)) return value.map(redactRecord);
  if (typeof value !== "object" || value === null) return value;
  const isSet = (inner: unknown): boolean => inner !== undefined && inner !== null && inner !== "";
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [name, isSecretName(name) && isSet(inner) ? redacted : redactRecord(inner)]),
  );
}
