package k8s

// The objects of the API that a manifest has, with the fields that it sets. Their order here is that of the output.

type list struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []any  `json:"items"`
}

type meta struct {
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

type secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   meta              `json:"metadata"`
	Immutable  bool              `json:"immutable"`
	Type       string            `json:"type"`
	StringData map[string]string `json:"stringData"`
}

type service struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Metadata   meta        `json:"metadata"`
	Spec       serviceSpec `json:"spec"`
}

type serviceSpec struct {
	ClusterIP                string            `json:"clusterIP"`
	PublishNotReadyAddresses bool              `json:"publishNotReadyAddresses"`
	Selector                 map[string]string `json:"selector"`
	Ports                    []servicePort     `json:"ports"`
}

type servicePort struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

type batchJob struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Metadata   meta    `json:"metadata"`
	Spec       jobSpec `json:"spec"`
}

type jobSpec struct {
	CompletionMode       string            `json:"completionMode"`
	Completions          int               `json:"completions"`
	Parallelism          int               `json:"parallelism"`
	BackoffLimit         *int              `json:"backoffLimit,omitempty"`
	BackoffLimitPerIndex *int              `json:"backoffLimitPerIndex,omitempty"`
	PodReplacementPolicy string            `json:"podReplacementPolicy,omitempty"`
	PodFailurePolicy     *podFailurePolicy `json:"podFailurePolicy,omitempty"`
	SuccessPolicy        *successPolicy    `json:"successPolicy,omitempty"`
	KeepFor              *int              `json:"ttlSecondsAfterFinished,omitempty"`
	Template             template          `json:"template"`
}

type podFailurePolicy struct {
	Rules []failureRule `json:"rules"`
}

type failureRule struct {
	Action      string    `json:"action"`
	OnExitCodes exitCodes `json:"onExitCodes"`
}

type exitCodes struct {
	ContainerName string `json:"containerName"`
	Operator      string `json:"operator"`
	Values        []int  `json:"values"`
}

type successPolicy struct {
	Rules []successRule `json:"rules"`
}

type successRule struct {
	SucceededIndexes string `json:"succeededIndexes"`
}

type template struct {
	Metadata meta    `json:"metadata"`
	Spec     podSpec `json:"spec"`
}

type podSpec struct {
	Subdomain                    string            `json:"subdomain"`
	HostNetwork                  bool              `json:"hostNetwork,omitempty"`
	DNSPolicy                    string            `json:"dnsPolicy,omitempty"`
	RestartPolicy                string            `json:"restartPolicy"`
	AutomountServiceAccountToken bool              `json:"automountServiceAccountToken"`
	EnableServiceLinks           bool              `json:"enableServiceLinks"`
	SecurityContext              podSecurity       `json:"securityContext"`
	ImagePullSecrets             []reference       `json:"imagePullSecrets,omitempty"`
	NodeSelector                 map[string]string `json:"nodeSelector,omitempty"`
	Affinity                     *affinity         `json:"affinity,omitempty"`
	Tolerations                  []toleration      `json:"tolerations,omitempty"`
	Containers                   []container       `json:"containers"`
	Volumes                      []volume          `json:"volumes"`
}

type podSecurity struct {
	RunAsNonRoot   bool           `json:"runAsNonRoot"`
	RunAsUser      int64          `json:"runAsUser"`
	RunAsGroup     int64          `json:"runAsGroup"`
	FSGroup        int64          `json:"fsGroup"`
	SeccompProfile seccompProfile `json:"seccompProfile"`
}

type seccompProfile struct {
	Type string `json:"type"`
}

type container struct {
	Name            string            `json:"name"`
	Image           string            `json:"image"`
	Command         []string          `json:"command"`
	Ports           []containerPort   `json:"ports"`
	EnvFrom         []envFrom         `json:"envFrom,omitempty"`
	Env             []envVar          `json:"env,omitempty"`
	Resources       resources         `json:"resources"`
	SecurityContext containerSecurity `json:"securityContext"`
	VolumeMounts    []mount           `json:"volumeMounts"`
}

type containerPort struct {
	Name          string `json:"name"`
	ContainerPort int    `json:"containerPort"`
}

type resources struct {
	Requests map[string]string `json:"requests"`
	Limits   map[string]string `json:"limits,omitempty"`
}

type containerSecurity struct {
	AllowPrivilegeEscalation bool         `json:"allowPrivilegeEscalation"`
	Capabilities             capabilities `json:"capabilities"`
}

type capabilities struct {
	Drop []string `json:"drop"`
	Add  []string `json:"add,omitempty"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type volume struct {
	Name     string        `json:"name"`
	Secret   *secretVolume `json:"secret,omitempty"`
	EmptyDir *emptyDir     `json:"emptyDir,omitempty"`
	Claim    *claimVolume  `json:"persistentVolumeClaim,omitempty"`
}

type claimVolume struct {
	ClaimName string `json:"claimName"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type reference struct {
	Name string `json:"name"`
}

type envFrom struct {
	SecretRef reference `json:"secretRef"`
}

type envVar struct {
	Name      string    `json:"name"`
	ValueFrom valueFrom `json:"valueFrom"`
}

type valueFrom struct {
	SecretKeyRef *keyRef   `json:"secretKeyRef,omitempty"`
	FieldRef     *fieldRef `json:"fieldRef,omitempty"`
}

type fieldRef struct {
	FieldPath string `json:"fieldPath"`
}

type keyRef struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

type affinity struct {
	PodAntiAffinity podAntiAffinity `json:"podAntiAffinity"`
}

type podAntiAffinity struct {
	Required []podAffinityTerm `json:"requiredDuringSchedulingIgnoredDuringExecution"`
}

type podAffinityTerm struct {
	LabelSelector labelSelector `json:"labelSelector"`
	TopologyKey   string        `json:"topologyKey"`
}

type labelSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type secretVolume struct {
	SecretName  string    `json:"secretName"`
	DefaultMode int       `json:"defaultMode"`
	Items       []keyPath `json:"items"`
}

type keyPath struct {
	Key  string `json:"key"`
	Path string `json:"path"`
}

type emptyDir struct {
	Medium    string `json:"medium"`
	SizeLimit string `json:"sizeLimit"`
}
