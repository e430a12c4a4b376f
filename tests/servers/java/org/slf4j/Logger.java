package org.slf4j;

/** The part of SLF4J's interface that Iceberg calls, so that no logging library is needed: nothing is logged. */
public interface Logger {
  default boolean isTraceEnabled() {
    return false;
  }

  default boolean isDebugEnabled() {
    return false;
  }

  default boolean isInfoEnabled() {
    return false;
  }

  default void trace(String message) {}

  default void trace(String format, Object argument) {}

  default void trace(String format, Object first, Object second) {}

  default void trace(String format, Object... arguments) {}

  default void trace(String message, Throwable cause) {}

  default void debug(String message) {}

  default void debug(String format, Object argument) {}

  default void debug(String format, Object first, Object second) {}

  default void debug(String format, Object... arguments) {}

  default void debug(String message, Throwable cause) {}

  default void info(String message) {}

  default void info(String format, Object argument) {}

  default void info(String format, Object first, Object second) {}

  default void info(String format, Object... arguments) {}

  default void info(String message, Throwable cause) {}

  default void warn(String message) {}

  default void warn(String format, Object argument) {}

  default void warn(String format, Object first, Object second) {}

  default void warn(String format, Object... arguments) {}

  default void warn(String message, Throwable cause) {}

  default void error(String message) {}

  default void error(String format, Object argument) {}

  default void error(String format, Object first, Object second) {}

  default void error(String format, Object... arguments) {}

  default void error(String message, Throwable cause) {}
}
