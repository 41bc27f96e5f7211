import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import io.apicurio.registry.serde.protobuf.ProtobufSerdeHeaders;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;

/** Reads values in base64, one a line, and prints what the registry's deserializers make of them, as JSON. */
public class Decode {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("apicurio.registry.url", args[1]);
        // Confluent's wire format: four bytes of id, no headers, and of Protobuf the indexes of the message.
        config.put("apicurio.registry.id-handler", "io.apicurio.registry.serde.Default4ByteIdHandler");
        config.put("apicurio.registry.use-id", "contentId");
        config.put("apicurio.registry.headers.enabled", "false");
        config.put("apicurio.registry.serde.validation-enabled", "true");
        config.put("apicurio.registry.serde.read-type-ref", "false");
        config.put("apicurio.registry.serde.read-indexes", "true");
        if (args[0].equals("protobuf")) { // there are no classes made from the schema
            config.put("apicurio.registry.deserializer.value.return-class", "com.google.protobuf.DynamicMessage");
        }
        Deserializer<?> d = switch (args[0]) {
            case "avro" -> new io.apicurio.registry.serde.avro.AvroKafkaDeserializer<Object>();
            case "protobuf" ->
                new io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer<com.google.protobuf.DynamicMessage>();
            default -> new io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer<Object>();
        };
        d.configure(config, false);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Headers headers = new RecordHeaders();
            if (args.length > 2) { // this deserializer skips the indexes, and wants the message's name
                new ProtobufSerdeHeaders(config, false).addMessageTypeHeader(headers, args[2]);
            }
            Object value = d.deserialize("any", headers, Base64.getDecoder().decode(line));
            if (value instanceof com.google.protobuf.MessageOrBuilder m) {
                value = com.google.protobuf.util.JsonFormat.printer().omittingInsignificantWhitespace()
                    .alwaysPrintFieldsWithNoPresence().print(m); // what is empty, too
            }
            out.println(value);
        }
        out.flush();
        System.exit(0); // the client's threads would keep the process
    }
}
